-- read returns the member for a node, the microseconds that its session has left (0 if
-- the store does not know the session), and the time.   ARGV: session, queue, name
if not alive() then return ended end
local member = find(ARGV[2], ARGV[3])
if not member then return { err = 'DLOCKGONE the node is not in the queue' } end
local owner = string.match(member, '^[^/]*/([^/]*)/') or ''
return { member, (redis.call('ZSCORE', sessions, owner) or now) - now, now }
