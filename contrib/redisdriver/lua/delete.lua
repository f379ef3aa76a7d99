-- delete removes a node of the session.   ARGV: session, queue, sequence, 'r' or 'c'
if not alive() then return ended end
local queue = ARGV[2]
local member, name, op = owned(queue, self, ARGV[3])
if not member then return { err = 'DLOCKGONE the node is not in the queue' } end
redis.call('ZREM', P .. 'q:' .. queue, member)
redis.call('HDEL', P .. 's:' .. self, op)
gone(queue, name, ARGV[4])
return 1
