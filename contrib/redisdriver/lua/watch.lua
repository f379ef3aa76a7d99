-- watch makes the store tell the session when one of the nodes has gone. It returns 0 if
-- one of them is not there.
-- ARGV: session, queue, sequence of the own node or 0, its name, names of nodes ahead...
if not alive() then return ended end
local queue = ARGV[2]
if ARGV[3] ~= '0' then
  local _, name = owned(queue, self, ARGV[3])
  if name ~= ARGV[4] then return 0 end
end
for i = 4, #ARGV do
  if not find(queue, ARGV[i]) then return 0 end
end
for i = 4, #ARGV do watch(queue, ARGV[i], self .. '/' .. ARGV[4]) end
return 1
