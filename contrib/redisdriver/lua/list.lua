-- list returns the members of a queue.   ARGV: session, queue
if not alive() then return ended end
return redis.call('ZRANGE', P .. 'q:' .. ARGV[2], 0, -1)
