-- Give jobs their places in one queue, and wake sleepers for what is ready or the new head of its lane.
-- KEYS  1 the queue's own hash, 2 what was handed out, then a sorted set for each lane and rank, scored by due time
-- ARGV  1 now, 2 the channel of the bell, 3 what to ring with, 4 "1" if the jobs are new and stand nowhere, then for each job: the number of
--       its lane among KEYS, its due time, its id
-- Gives 1 if sleepers were woken, else 0. Refuses with LOST where the queue was not begun, or what it held is gone.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return redis.error_reply('LOST this queue is not in the line')
end
local lanes, ids, home = {}, {}, {}
for n = 5, #ARGV, 3 do
    local key = KEYS[tonumber(ARGV[n])]
    local lane = lanes[key] or {}
    lanes[key] = lane
    lane[#lane + 1] = ARGV[n + 1]
    lane[#lane + 1] = ARGV[n + 2]
    ids[#ids + 1] = ARGV[n + 2]
    home[ARGV[n + 2]] = key
end
if ARGV[4] ~= '1' then
    redis.call('ZREM', KEYS[2], unpack(ids))
    for n = 3, #KEYS do
        local strangers = {}
        for _, id in ipairs(ids) do
            if home[id] ~= KEYS[n] then
                strangers[#strangers + 1] = id
            end
        end
        if #strangers > 0 then
            redis.call('ZREM', KEYS[n], unpack(strangers))
        end
    end
end
local wake = false
for key, lane in pairs(lanes) do
    local first = math.huge
    for n = 1, #lane, 2 do
        first = math.min(first, tonumber(lane[n]))
    end
    local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local moved = redis.call('ZADD', key, 'CH', unpack(lane)) > 0
    wake = wake or (moved and (first <= tonumber(ARGV[1]) or not head[1] or first < tonumber(head[2])))
end
if wake then
    redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return wake and 1 or 0
