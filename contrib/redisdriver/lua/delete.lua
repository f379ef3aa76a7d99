-- delete removes a node of the session. A node that is there belongs to a session that no
-- script has dropped. If nobody watches the queue, a removal from data of an earlier
-- generation makes nobody a holder.   ARGV: session, queue, sequence, 'r' or 'c'
local queue = ARGV[2]
if redis.call('EXISTS', P .. 'w:' .. queue) == 1 and not current() then return ended end
local member, name, op = owned(queue, self, ARGV[3])
if not member then
  return alive() and { err = 'DLOCKGONE the node is not in the queue' } or ended
end
redis.call('ZREM', P .. 'q:' .. queue, member)
redis.call('HDEL', P .. 's:' .. self, op)
gone(queue, name, ARGV[4], op)
return 1
