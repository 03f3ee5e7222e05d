-- Gives jobs their places in one lane of a queue, and notifies waiters if one of them is ready or the new head of the lane.
--
-- KEYS  1  hash of the queue
--       2  sorted set of the jobs that were handed out
--       3+ sorted sets of the lanes and ranks, scored by due time
-- ARGV  1  now, in ms
--       2  channel of the notifications
--       3  notification
--       4  mode: "moved" if the jobs may stand elsewhere or be handed out, "fresh" to leave those alone that stand in the lane,
--          "missing" to skip those in their place and those that are handed out, "returned" as "moved" but without a
--          notification
--       5  index of the lane among KEYS
--       6  first due time
--       7  due times and ids alternately, as JSON: the client writes and sends it much faster than as many arguments
--
-- Returns the number of jobs that were not in their place, and 1 if waiters were notified, else 0.
-- Error LOST if the queue was not begun, or what it held is gone.
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
    local stands, handed_out, all = redis.call('ZMSCORE', key, unpack(ids)), redis.call('ZMSCORE', KEYS[2], unpack(ids)), places
    places, ids, first = {}, {}, math.huge
    for n = 2, #all, 2 do
        local due = tonumber(all[n - 1])
        if not handed_out[n / 2] and not (stands[n / 2] and tonumber(stands[n / 2]) == due) then
            places[#places + 1], places[#places + 2], ids[#ids + 1] = all[n - 1], all[n], all[n]
            first = math.min(first, due)
        end
    end
    if #ids == 0 then
        return { 0, 0 }
    end
end
local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
-- Add before removing: a server that is out of memory refuses the ZADD, and no job falls out of the line.
local moved = redis.call('ZADD', key, ARGV[4] == 'fresh' and 'NX' or 'CH', unpack(places))
local wake = moved > 0 and ARGV[4] ~= 'returned' and (first <= tonumber(ARGV[1]) or not head[1] or first < tonumber(head[2]))
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
return { moved, wake and 1 or 0 }
