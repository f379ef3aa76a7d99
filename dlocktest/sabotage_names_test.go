package dlocktest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var nameSabotages = []sabotage{
	{"accepts a slash in the prefix of a node", "a store without paths, where a slash is an ordinary character",
		of(func(s base) takesSlash { return takesSlash{s} })},
	{"has no epochs", "a counter that is removed with its queue",
		of(func(s base) noEpoch { return noEpoch{unknowing{s}} })},
	{"writes the sequence without zeros", "Sprint of the sequence instead of FormatName",
		of(func(s base) shortNames { return shortNames{unknowing{s}} })},
	{"does not distinguish upper case from lower case", "SQL: the default collation of MySQL and SQL Server",
		of(func(s base) *otherQueues { return &otherQueues{s, strings.ToLower} })},
	{"cuts long names", "SQL: a column of 255 characters, and a server that cuts without an error",
		of(func(s base) *otherQueues {
			return &otherQueues{s, func(q string) string { return q[:min(len(q), 255)] }}
		})},
	{"ignores spaces at the end", "SQL: strings are padded before they are compared",
		of(func(s base) *otherQueues {
			return &otherQueues{s, func(q string) string { return strings.TrimRight(q, " ") }}
		})},
	{"mistakes a queue for a node of the queue above it", "a store with paths, where the nodes and the queues below have one parent: ZooKeeper, a file system",
		of(func(s base) mixed { return mixed{s} })},
	{"stores two queues under one name", "a mark behind a name that looks like a node, and no second mark behind a name that has the mark already",
		of(func(s base) *otherQueues { return &otherQueues{s, markNodeLike} })},
	{"stores slashes as dots", "a store whose keys may have no slash: NATS, Kubernetes",
		of(func(s base) *otherQueues {
			return &otherQueues{s, func(q string) string {
				if driver.CheckQueue(q) != nil {
					return q
				}
				return strings.ReplaceAll(q, "/", ".")
			}}
		})},
}

type shortNames struct{ base }

func short(n driver.Node) driver.Node {
	if prefix, seq, ok := driver.ParseName(n.Name); ok {
		n.Name = prefix + strconv.FormatInt(seq, 10)
	}
	return n
}

func (s shortNames) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	j.Node = short(j.Node)
	return j, err
}

func (s shortNames) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	for i := range nodes {
		nodes[i] = short(nodes[i])
	}
	return nodes, err
}

func (s shortNames) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	long := func(n driver.Node) driver.Node {
		if i := strings.LastIndexByte(n.Name, '-'); i >= 0 {
			n.Name = driver.FormatName(n.Name[:i+1], n.Seq)
		}
		return n
	}
	p.Node = long(p.Node)
	nodes := make([]driver.Node, len(ahead))
	for i, n := range ahead {
		nodes[i] = long(n)
	}
	return s.base.Watch(ctx, queue, p, nodes...)
}

// otherQueues is a session that renames queues before each request, as if it
// encoded their names wrongly.
type otherQueues struct {
	base
	name func(string) string
}

func (s *otherQueues) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	return s.base.Create(ctx, s.name(queue), n)
}

func (s *otherQueues) List(ctx context.Context, queue string) ([]driver.Node, error) {
	return s.base.List(ctx, s.name(queue))
}

func (s *otherQueues) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	return s.base.Watch(ctx, s.name(queue), p, ahead...)
}

func (s *otherQueues) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	return s.base.WatchQueue(ctx, s.name(queue))
}

func (s *otherQueues) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	return s.base.Delete(ctx, s.name(queue), p, why)
}

func (s *otherQueues) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	return s.base.Replace(ctx, s.name(queue), p, prefix)
}

func (s *otherQueues) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	return s.base.Read(ctx, s.name(queue), name)
}

type takesSlash struct{ base }

func (s takesSlash) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Prefix = strings.ReplaceAll(n.Prefix, "/", ".")
	return s.base.Create(ctx, queue, n)
}

type noEpoch struct{ base }

func (s noEpoch) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	j.Epoch = 0
	return j, err
}

func (s noEpoch) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	for i := range nodes {
		nodes[i].Epoch = 0
	}
	return nodes, err
}

// mixed is a session that confuses queues with nodes: List also returns the
// queues directly below the queue whose names look like nodes.
type mixed struct{ base }

func (s mixed) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	if err != nil {
		return nodes, err
	}
	below, err := s.base.Walk(ctx, queue)
	for _, name := range below {
		segment, isBelow := strings.CutPrefix(name, queue+"/")
		if _, seq, ok := driver.ParseName(segment); ok && isBelow && !strings.Contains(segment, "/") {
			nodes = append(nodes, driver.Node{Name: segment, Seq: seq})
		}
	}
	slices.SortStableFunc(nodes, func(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) })
	return nodes, err
}

// markNodeLike escapes path segments that look like nodes by adding a mark. It
// wrongly leaves segments that already end in the mark unchanged.
func markNodeLike(queue string) string {
	if driver.CheckQueue(queue) != nil {
		return queue
	}
	segments := strings.Split(queue, "/")
	for i, segment := range segments {
		if _, _, ok := driver.ParseName(segment); ok {
			segments[i] += "~"
		}
	}
	return strings.Join(segments, "/")
}
