-- Say who looks after the line for a while: whoever does, or the first to ask once nobody does.
-- KEYS  1 the tender
-- ARGV  1 who asks, 2 for how many milliseconds
-- Gives 1 if it is the one who asks.
local tender = redis.call('GET', KEYS[1])
if tender and tender ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
