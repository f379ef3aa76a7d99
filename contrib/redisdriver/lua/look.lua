-- look returns all members of a queue, those of other sessions shortened to names, or
-- only the members for the given names. When names are given, a key that another program
-- has made with another type counts as an empty queue.
--   ARGV: session, for each queue: its name, the number of names or -1 for all nodes, names...
if not alive() then return ended end
local found, i = {}, 2
while ARGV[i] do
  local queue, n, members = ARGV[i], tonumber(ARGV[i + 1]), {}
  if n < 0 then
    members = redis.call('ZRANGE', P .. 'q:' .. queue, 0, -1)
    brief(members, #members)
  elseif redis.call('TYPE', P .. 'q:' .. queue).ok == 'zset' then
    for j = i + 2, i + 1 + n do members[#members + 1] = find(queue, ARGV[j]) end
  end
  found[#found + 1] = members
  i = i + 2 + math.max(n, 0)
end
return found
