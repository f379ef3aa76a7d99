-- look returns the members for those nodes of these names that are in the queue.
-- ARGV: session, queue, names...
if not alive() then return ended end
local found = {}
for i = 3, #ARGV do found[#found + 1] = find(ARGV[2], ARGV[i]) end
return found
