-- beat renews a session. It returns the time until the earliest deadline of all sessions,
-- in microseconds, and how many replicas must confirm the next heartbeat.
--   ARGV: session, timeout in microseconds
if not alive() then return ended end
redis.call('ZADD', sessions, now + ARGV[2], self)
note()
return { redis.call('ZRANGE', sessions, 0, 0, 'WITHSCORES')[2] - now, most(replicas) }
