-- Begins an epoch. A line that is in this epoch, or in a later one, stays as it is.
--
-- KEYS  1  hash of the line's state
-- ARGV  1  epoch
--
-- Returns 1 if the epoch was begun, else 0.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
return 1
