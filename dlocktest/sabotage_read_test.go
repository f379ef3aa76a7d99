package dlocktest

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var readSabotages = []sabotage{
	{"reads the owner from the data", "a store whose nodes have no owner of their own",
		func(s *faulty) {
			owners := inStore[sync.Map](s)
			s.before(faults.OpCreate, func(r *request) { owners.Store(string(r.spec.Data), s.base.Describe().ID) })
			s.after(faults.OpRead, func(r *request) {
				if owner, known := owners.Load(string(r.info.Data)); known {
					r.info.Owner = owner.(string)
				}
			})
		}},
	{"reads data that the caller has overwritten", "keeping the slice instead of a copy",
		func(s *faulty) {
			kept := inStore[sync.Map](s) // data by node name
			s.after(faults.OpCreate, func(r *request) { kept.Store(r.joined.Name, r.spec.Data) })
			s.after(faults.OpRead, func(r *request) {
				if data, ok := kept.Load(r.name); ok {
					r.info.Data = data.([]byte)
				}
			})
		}},
	{"takes each node for foreign", "comparing the owner with the connection instead of the session",
		after(faults.OpRead, func(r *request) { r.info.Foreign = true })},
	{"reads the deadline of a session as what is left of it", "SQL, Redis: a column with the time since 1970",
		after(faults.OpRead, func(r *request) { r.info.SessionLeft += time.Duration(time.Now().UnixNano()) })},
	{"reads what is left of a session in the wrong unit", "seconds, milliseconds and microseconds",
		after(faults.OpRead, func(r *request) { r.info.SessionLeft /= 1000 })},
	{"reads a session for a node without one", "SQL: a null taken for the default timeout",
		after(faults.OpRead, func(r *request) { r.info.SessionLeft = max(r.info.SessionLeft, time.Millisecond) })},
	{"reads a node that is gone", "an empty answer that is not taken for an error",
		confuses(faults.OpRead, driver.ErrGone, nil)},
}

var walkSabotages = []sabotage{
	{"walks by the letters of the prefix", "a prefix of keys taken for a path",
		on(faults.OpWalk, func(r *request, send func()) {
			prefix := r.queue
			r.queue = ""
			send()
			r.queues = slices.DeleteFunc(r.queues, func(q string) bool { return !strings.HasPrefix(q, prefix) })
		})},
	{"finds nothing at a prefix that is no name of a queue", "a prefix of keys that is not checked",
		confuses(faults.OpWalk, driver.ErrBadName, nil)},
}
