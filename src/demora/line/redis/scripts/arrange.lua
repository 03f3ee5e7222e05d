-- Begin a queue if it is not begun, serve it so from now on, and wake sleepers if that is another way than before.
-- KEYS  1 the queue's own hash
-- ARGV  1 the offsets of its lanes, separated by spaces, 2 "1" if it hands out nothing, 3 the channel of the bell, 4 what to ring with
-- Gives 1 if it was served in another way before, else 0.
local before = redis.call('HMGET', KEYS[1], 'offsets', 'paused')
redis.call('HSET', KEYS[1], 'begun', '1', 'offsets', ARGV[1], 'paused', ARGV[2])
if before[1] == ARGV[1] and before[2] == ARGV[2] then
    return 0
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
