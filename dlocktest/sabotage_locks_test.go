package dlocktest

import "github.com/dlock-go/dlock/driver"

// lockSabotages are broken drivers that the cases for dlock's locks must catch,
// although each breaks a rule that has its own cases.
var lockSabotages = []sabotage{
	{"always says that no node is ahead; seen in locks", "see rule 5", tells(func([]driver.Node, driver.Node) []driver.Node { return nil })},
	{"sends Released without knowing what operators removed; seen in locks", "see rule 13",
		overtaking(func(s *overtaken, p driver.Place) bool {
			_, own := s.deleted.Load(p)
			return !own && s.Err() == nil
		})},
	{"learns of its end late; seen in locks", "see rule 8", of(newLateEnd)},
	{"leaves the node of a create that was cancelled; seen in locks", "see rule 4", of(func(s base) driver.Session { return orphans{s} })},
}
