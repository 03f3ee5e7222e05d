-- Record until when all that is due was put into the line, and whether it was filled.
-- KEYS  1 the state of the line
-- ARGV  1 the number that it must have, 2 until when, 3 the position of the database, 4 "1" if the line was filled
-- Refuses with LOST where the line has another number.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
    return redis.error_reply('LOST the line has another number')
end
redis.call('HSET', KEYS[1], 'until', ARGV[2], 'position', ARGV[3])
if ARGV[4] == '1' then
    redis.call('HSET', KEYS[1], 'filled', ARGV[1])
end
return 1
