-- Work under a new number; a line that already has it, or a greater one, stays as it is.
-- KEYS  1 the state of the line
-- ARGV  1 the number
-- Gives 1 if it is new.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
return 1
