-- remove removes the node with that name and token, whatever session it belongs to. The
-- token of a node made by another program is 0.   ARGV: session, queue, name, token
if not alive() then return ended end
local queue, name = ARGV[2], ARGV[3]
local member = find(queue, name)
local stored, owner, op = string.match(member or '', '^([^/]*)/([^/]*)/([^/]*)/')
local token = stored and owner ~= '' and string.match(stored, '%-(%d+)$') or 0
if not member or (stored or member) ~= name or tonumber(token) ~= tonumber(ARGV[4]) then
  return { err = 'DLOCKGONE the node is not in the queue' }
end
redis.call('ZREM', P .. 'q:' .. queue, member)
gone(queue, name, 'c')
if token ~= 0 then redis.pcall('HDEL', P .. 's:' .. owner, op) end
return 1
