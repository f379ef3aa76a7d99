package dlocktest

import "github.com/dlock-go/dlock/driver"

// lockSabotages are some of the others, as they show in the locks on top of the driver.
var lockSabotages = []sabotage{
	{"is always alone, seen from above", "rule 5", tells(func([]driver.Node, driver.Node) []driver.Node { return nil })},
	{"does not hear of operators before Released, seen from above", "rule 13",
		overtaking(func(s *overtaken, p driver.Place) bool {
			_, own := s.deleted.Load(p)
			return !own && s.Err() == nil
		})},
	{"learns of its end late, seen from above", "rule 8", of(newLateEnd)},
	{"forgets what a cancelled create made, seen from above", "rule 4", of(func(s base) driver.Session { return orphans{s} })},
}
