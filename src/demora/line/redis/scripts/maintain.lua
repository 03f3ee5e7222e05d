-- Makes a process the maintainer of the line, or renews this, if no other process is.
--
-- KEYS  1  name of the maintaining process; expires
-- ARGV  1  process
--       2  span in ms
--
-- Returns 1 if the process is now the maintainer, else 0.
local maintainer = redis.call('GET', KEYS[1])
if maintainer and maintainer ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
