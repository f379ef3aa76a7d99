-- delete removes a node of the session. If the node is there, so is the session, because
-- drop removes both. Old data matter only if somebody watches the queue: otherwise the
-- removal makes nobody a holder.   ARGV: session, queue, sequence, 'r' or 'c'
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
