-- Give jobs their places in one queue, and wake sleepers for what is ready or the new head of its lane.
-- KEYS  1 the queue's own hash, 2 what was handed out, then a sorted set for each lane and rank, scored by due time
-- ARGV  1 now, 2 the channel of the bell, 3 what to ring with, 4 "moved" if the jobs may stand elsewhere, "fresh" if they stand
--       nowhere, "missing" to leave alone what stands there or is handed out, 5 the jobs as JSON: for each lane its number among
--       KEYS, and a list of due times and ids in turn
-- Gives 1 if sleepers were woken, else 0. Refuses with LOST where the queue was not begun, or what it held is gone.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return redis.error_reply('LOST this queue is not in the line')
end
local lanes = {}
for _, lane in ipairs(cjson.decode(ARGV[5])) do
    lanes[KEYS[lane[1]]] = lane[2]
end
if ARGV[4] == 'missing' then
    for key, lane in pairs(lanes) do
        local ids, missing = {}, {}
        for n = 2, #lane, 2 do
            ids[#ids + 1] = lane[n]
        end
        local stands, out = redis.call('ZMSCORE', key, unpack(ids)), redis.call('ZMSCORE', KEYS[2], unpack(ids))
        for n, id in ipairs(ids) do
            if not out[n] and not (stands[n] and tonumber(stands[n]) == lane[2 * n - 1]) then
                missing[#missing + 1] = lane[2 * n - 1]
                missing[#missing + 1] = id
            end
        end
        lanes[key] = #missing > 0 and missing or nil
    end
end
local wake = false -- places are given before others are taken: a server that is out of memory refuses to, and nobody falls out
for key, lane in pairs(lanes) do
    local first = math.huge
    for n = 1, #lane, 2 do
        first = math.min(first, lane[n])
    end
    local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local moved = redis.call('ZADD', key, 'CH', unpack(lane)) > 0
    wake = wake or (moved and (first <= tonumber(ARGV[1]) or not head[1] or first < tonumber(head[2])))
end
if ARGV[4] ~= 'fresh' and next(lanes) then
    local ids, home = {}, {}
    for key, lane in pairs(lanes) do
        for n = 2, #lane, 2 do
            ids[#ids + 1] = lane[n]
            home[lane[n]] = key
        end
    end
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
if wake then
    redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return wake and 1 or 0
