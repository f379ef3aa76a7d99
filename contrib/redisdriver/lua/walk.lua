-- walk returns one page of the keys that match a pattern, as SCAN does. A bare SCAN names
-- no key, so any server of a cluster would answer it.   ARGV: session, cursor, pattern
if not alive() then return ended end
return redis.call('SCAN', ARGV[2], 'MATCH', ARGV[3], 'COUNT', 1000)
