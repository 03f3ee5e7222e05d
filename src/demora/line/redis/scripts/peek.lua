-- Show the first jobs of one queue that are due, lane by lane, so that several queues can be merged; takes nothing.
-- KEYS  1 the queue's own hash, 2 what was handed out, then a sorted set for each lane and rank, scored by due time
-- ARGV  1 now, 2 how many of a lane at most, 3 what was handed out before this is taken to be forgotten, 4 the usual offsets of the
--       lanes, separated by spaces
-- Gives the next due time or "", then for each job its place in the order and its id. Refuses with LOST as `take` does.
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
