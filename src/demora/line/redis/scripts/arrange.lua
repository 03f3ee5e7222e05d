-- Begins a queue if it is not begun, records how it is served, and notifies waiters if that is a change.
--
-- KEYS  1  hash of the queue: begun, offsets, paused
-- ARGV  1  offsets of the lanes, separated by spaces; "held" for a lane that is not handed out
--       2  "1" if the queue is paused, else "0"
--       3  channel of the notifications
--       4  notification
--
-- Returns 1 if the queue was served differently before, else 0.
local before = redis.call('HMGET', KEYS[1], 'offsets', 'paused')
redis.call('HSET', KEYS[1], 'begun', '1', 'offsets', ARGV[1], 'paused', ARGV[2])
if before[1] == ARGV[1] and before[2] == ARGV[2] then
    return 0
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
