-- Take jobs of one queue out of wherever they stand.
-- KEYS  1 the queue's own hash, 2 what was handed out, then a sorted set for each lane and rank
-- ARGV  ids
-- Gives how many stood somewhere.
local found = 0
for n = 2, #KEYS do
    found = found + redis.call('ZREM', KEYS[n], unpack(ARGV))
end
return found
