-- Shows the first due jobs of one queue, lane by lane, so that the caller can merge several queues. Takes nothing.
--
-- KEYS  1  hash of the queue: begun, offsets, paused
--       2  sorted set of the jobs that were handed out, scored by when
--       3+ sorted sets of the lanes and ranks, scored by due time
-- ARGV  1  now, in ms
--       2  number of jobs of each lane, at most
--       3  jobs that were handed out before this time are shown first
--       4  offsets of a queue without its own, separated by spaces
--
-- Returns the next due time or "", then for each job its sum of due time and offset, and its id.
-- Error LOST if the queue was not begun, or what it held is gone.
local kept = redis.call('HMGET', KEYS[1], 'begun', 'paused', 'offsets')
if not kept[1] then
    return redis.error_reply('LOST this queue is not in the line')
end
if kept[2] == '1' then
    return { '' }
end
local out = { '' }
local next_due = math.huge
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[3], 'LIMIT', 0, ARGV[2])) do
    out[#out + 1] = '-inf'
    out[#out + 1] = id
end
local n = 2
for offset in string.gmatch(kept[3] or ARGV[4], '%S+') do
    n = n + 1
    if offset ~= 'held' then
        local due = redis.call('ZRANGEBYSCORE', KEYS[n], '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
        for i = 1, #due, 2 do
            out[#out + 1] = string.format('%.0f', tonumber(due[i + 1]) + tonumber(offset))
            out[#out + 1] = due[i]
        end
        local later = redis.call('ZRANGEBYSCORE', KEYS[n], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if later[2] then
            next_due = math.min(next_due, tonumber(later[2]))
        end
    end
end
if next_due < math.huge then
    out[1] = string.format('%.0f', next_due)
end
return out
