-- value returns the token and the value that were set last, or two nils.
-- ARGV: session, queue
if not alive() then return ended end
return redis.call('HMGET', P .. 'k:' .. ARGV[2], 'token', 'value')
