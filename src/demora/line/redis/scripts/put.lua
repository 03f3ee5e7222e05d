-- Give jobs their places in one lane of a queue, and wake sleepers for what is ready or the new head of the lane.
-- KEYS  1 the queue's own hash, 2 what was handed out, then a sorted set for each lane and rank, scored by due time
-- ARGV  1 now, 2 the channel of the bell, 3 what to ring with, 4 "moved" if the jobs may stand elsewhere, "fresh" if they stand
--       nowhere, "missing" to leave alone what stands there or is handed out, "back" as "moved" but to wake nobody, 5 the number
--       of the lane among KEYS, 6 the first due time, 7 due times and ids in turn, as JSON: that is written and sent much faster
--       than as many arguments
-- Gives 1 if sleepers were woken, else 0. Refuses with LOST where the queue was not begun, or what it held is gone.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return redis.error_reply('LOST this queue is not in the line')
end
local key, first, places, ids = KEYS[tonumber(ARGV[5])], tonumber(ARGV[6]), cjson.decode(ARGV[7]), {}
if ARGV[4] ~= 'fresh' then
    for n = 2, #places, 2 do
        ids[#ids + 1] = places[n]
    end
end
if ARGV[4] == 'missing' then
    local stands, out, all = redis.call('ZMSCORE', key, unpack(ids)), redis.call('ZMSCORE', KEYS[2], unpack(ids)), places
    places, ids, first = {}, {}, math.huge
    for n = 2, #all, 2 do
        local due = tonumber(all[n - 1])
        if not out[n / 2] and not (stands[n / 2] and tonumber(stands[n / 2]) == due) then
            places[#places + 1], places[#places + 2], ids[#ids + 1] = all[n - 1], all[n], all[n]
            first = math.min(first, due)
        end
    end
    if #ids == 0 then
        return 0
    end
end
local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
-- Places are given before others are taken: a server that is out of memory refuses to, and nobody falls out.
local moved = redis.call('ZADD', key, 'CH', unpack(places)) > 0
local wake = moved and ARGV[4] ~= 'back' and (first <= tonumber(ARGV[1]) or not head[1] or first < tonumber(head[2]))
if ARGV[4] ~= 'fresh' then
    redis.call('ZREM', KEYS[2], unpack(ids))
    for n = 3, #KEYS do
        if KEYS[n] ~= key then
            redis.call('ZREM', KEYS[n], unpack(ids))
        end
    end
end
if wake then
    redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return wake and 1 or 0
