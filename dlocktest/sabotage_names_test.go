package dlocktest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var nameSabotages = []sabotage{
	{"accepts a slash in the prefix of a node", "a store without paths, where a slash is an ordinary character",
		before(faults.OpCreate, func(r *request) { r.spec.Prefix = strings.ReplaceAll(r.spec.Prefix, "/", ".") })},
	{"has no epochs", "a counter that is removed with its queue",
		all(unknowing, shows(func(n driver.Node) driver.Node {
			n.Epoch = 0
			return n
		}))},
	{"writes the sequence without zeros", "Sprint of the sequence instead of FormatName",
		all(unknowing, shows(func(n driver.Node) driver.Node {
			if prefix, seq, ok := driver.ParseName(n.Name); ok {
				n.Name = prefix + strconv.FormatInt(seq, 10)
			}
			return n
		}), on(faults.OpWatch, func(r *request, send func()) {
			long := func(n driver.Node) driver.Node {
				if i := strings.LastIndexByte(n.Name, '-'); i >= 0 {
					n.Name = driver.FormatName(n.Name[:i+1], n.Seq)
				}
				return n
			}
			r.place.Node, r.ahead = long(r.place.Node), slices.Clone(r.ahead)
			for i, n := range r.ahead {
				r.ahead[i] = long(n)
			}
			send()
		}))},
	{"does not distinguish upper case from lower case", "SQL: the default collation of MySQL and SQL Server",
		renames(strings.ToLower)},
	{"cuts long names", "SQL: a column of 255 characters, and a server that cuts without an error",
		renames(func(q string) string { return q[:min(len(q), 255)] })},
	{"ignores spaces at the end", "SQL: strings are padded before they are compared",
		renames(func(q string) string { return strings.TrimRight(q, " ") })},
	{"mistakes a queue for a node of the queue above it", "a store with paths, where the nodes and the queues below have one parent: ZooKeeper, a file system",
		after(faults.OpList, func(r *request) {
			below, _ := r.s.base.Walk(r.ctx, r.queue)
			for _, name := range below {
				segment, isBelow := strings.CutPrefix(name, r.queue+"/")
				if _, seq, ok := driver.ParseName(segment); ok && isBelow && !strings.Contains(segment, "/") {
					r.nodes = append(r.nodes, driver.Node{Name: segment, Seq: seq})
				}
			}
			slices.SortStableFunc(r.nodes, func(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) })
		})},
	{"stores two queues under one name", "a mark behind a name that looks like a node, and no second mark behind a name that has the mark already",
		renames(func(queue string) string {
			segments := strings.Split(queue, "/")
			for i, segment := range segments {
				if _, _, ok := driver.ParseName(segment); ok {
					segments[i] += "~"
				}
			}
			return strings.Join(segments, "/")
		})},
	{"stores slashes as dots", "a store whose keys may have no slash: NATS, Kubernetes",
		renames(func(q string) string { return strings.ReplaceAll(q, "/", ".") })},
	{"removes without a check of the name of the queue", "a method that is written last",
		confuses(faults.OpRemove, driver.ErrBadName, driver.ErrGone)},
	{"sets a value without a check of the name of the queue", "a method that is written last",
		confuses(faults.OpSetValue, driver.ErrBadName, driver.ErrGone)},
}

func shows(other func(driver.Node) driver.Node) plant {
	return all(
		after(faults.OpCreate, func(r *request) { r.joined.Node = other(r.joined.Node) }),
		after(faults.OpList, func(r *request) {
			for i, n := range r.nodes {
				r.nodes[i] = other(n)
			}
		}))
}

// renames changes queue names before each request, as if the driver encoded
// them wrongly.
func renames(name func(string) string) plant {
	return func(s *faulty) {
		for op := faults.OpCreate; op <= faults.OpValue; op++ {
			s.on(op, func(r *request, send func()) {
				if driver.CheckQueue(r.queue) == nil || len(r.queue) > driver.MaxQueue {
					r.queue = name(r.queue)
				}
				send()
			})
		}
	}
}
