-- delete removes a node of the session. Old data matter only if somebody watches the
-- queue: otherwise the removal makes nobody a holder, and this first part is enough.
--   ARGV: session, queue, sequence, 'r' or 'c'
local queue = ARGV[2]
local watched = redis.call('EXISTS', P .. 'w:' .. queue) == 1
local member, name, op = owned(queue, self, ARGV[3])

local function remove()
  redis.call('ZREM', P .. 'q:' .. queue, member)
  redis.call('HDEL', P .. 's:' .. self, op)
  return 1
end

if member and not watched then return remove() end
-- common.lua
if watched and not current() then return ended end
member, name, op = owned(queue, self, ARGV[3]) -- again, because current may call expire
if not member then -- if it were there, so would be the session, because drop removes both
  return alive() and { err = 'DLOCKGONE the node is not in the queue' } or ended
end
remove()
gone(queue, name, ARGV[4], op)
return 1
