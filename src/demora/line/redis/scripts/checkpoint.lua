-- Records which jobs the line holds, and whether this completes filling it.
--
-- KEYS  1  hash of the line's state
-- ARGV  1  epoch that the line must be in
--       2  time before which every due job is in the line, in ms
--       3  position of the database up to which this is true
--       4  "1" if the line is now filled, else "0"
--
-- Returns 1. Error LOST if the line is in another epoch.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
    return redis.error_reply('LOST the line is in another epoch')
end
redis.call('HSET', KEYS[1], 'until', ARGV[2], 'position', ARGV[3])
if ARGV[4] == '1' then
    redis.call('HSET', KEYS[1], 'filled', ARGV[1])
end
return 1
