-- watch returns the members for the nodes. If all are there, the store tells the session
-- when one of them has gone.   ARGV: session, queue, name of the own node, names of all nodes...
if not alive() then return ended end
local queue, found = ARGV[2], {}
for i = 4, #ARGV do found[#found + 1] = find(queue, ARGV[i]) end
if #found == #ARGV - 3 then
  for i = 4, #ARGV do watch(queue, ARGV[i], self .. '/' .. ARGV[3]) end
end
return found
