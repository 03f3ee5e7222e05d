-- Removes jobs from every place in one queue.
--
-- KEYS  1  hash of the queue
--       2  sorted set of the jobs that were handed out
--       3+ sorted sets of the lanes and ranks
-- ARGV  1+ ids
--
-- Returns the number of places from which jobs were removed.
local found = 0
for n = 2, #KEYS do
    found = found + redis.call('ZREM', KEYS[n], unpack(ARGV))
end
return found
