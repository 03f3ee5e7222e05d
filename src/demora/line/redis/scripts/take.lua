-- Hands out the first due jobs of one queue, in order; before them those that were handed out long ago and are not done.
--
-- KEYS  1  hash of the queue: begun, offsets, paused
--       2  sorted set of the jobs that were handed out, scored by when
--       3+ sorted sets of the lanes and ranks, scored by due time
-- ARGV  1  now, in ms
--       2  number of jobs, at most
--       3  jobs that were handed out before this time are handed out again
--       4  offsets of a queue without its own, separated by spaces
--       5+ ids of jobs that were handed out earlier and are done
--
-- Returns the next due time or "", then the ids in order. Error LOST if the queue was not begun, or what it held is gone.
local kept = redis.call('HMGET', KEYS[1], 'begun', 'paused', 'offsets')
if not kept[1] then
    return redis.error_reply('LOST this queue is not in the line')
end
if #ARGV > 4 then
    redis.call('ZREM', KEYS[2], unpack(ARGV, 5))
end
if kept[2] == '1' then
    return { '' }
end
local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local out = { '' }
local next_due = math.huge
local heads = {}
local n = 2
for offset in string.gmatch(kept[3] or ARGV[4], '%S+') do
    n = n + 1
    if offset ~= 'held' then
        local due = redis.call('ZRANGEBYSCORE', KEYS[n], '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
        if #due > 0 then
            heads[#heads + 1] = { key = KEYS[n], due = due, at = 1, offset = tonumber(offset) }
        end
        local later = redis.call('ZRANGEBYSCORE', KEYS[n], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if later[2] then
            next_due = math.min(next_due, tonumber(later[2]))
        end
    end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[3], 'LIMIT', 0, limit)) do
    out[#out + 1] = id
end
local taken = {}
while #out <= limit and #heads > 0 do
    local best, sum, id = nil, nil, nil
    for n, head in ipairs(heads) do
        local this = tonumber(head.due[head.at + 1]) + head.offset
        if not best or this < sum or (this == sum and head.due[head.at] < id) then
            best, sum, id = n, this, head.due[head.at]
        end
    end
    local head = heads[best]
    out[#out + 1] = id
    taken[head.key] = taken[head.key] or {}
    table.insert(taken[head.key], id)
    head.at = head.at + 2
    if head.at > #head.due then
        table.remove(heads, best)
    end
end
local handed = {}
for i = 2, #out do
    handed[#handed + 1] = ARGV[1]
    handed[#handed + 1] = out[i]
end
if #handed > 0 then
    redis.call('ZADD', KEYS[2], unpack(handed)) -- before ZREM: a server that is out of memory refuses it, and no job falls out of the line
end
for key, ids in pairs(taken) do
    redis.call('ZREM', key, unpack(ids))
end
if next_due < math.huge then
    out[1] = string.format('%.0f', next_due)
end
return out
