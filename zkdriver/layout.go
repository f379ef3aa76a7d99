package zkdriver

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// A layout gives nodes the names that another lock library expects, so that
// clients of that library and of dlock wait for each other. All of these
// libraries queue in the same way, and differ only in the text before a name's
// sequence. Callers of the driver see names of dlock; [layout.stored] and
// [layout.shown] translate between these and the stored names, one to one.
// Names that belong to neither library stay as they are. A nil layout changes
// nothing.
type layout struct {
	name string
	// The text before the sequence in the names of writers and readers; reader
	// is empty if the library has no readers.
	writer, reader string
}

var (
	ownLayout    = layout{"dlock", "-W-", "-R-"}
	otherLayouts = []layout{
		{"curator", "-" + curatorWriter, "-__READ__"}, // InterProcessReadWriteLock
		{"curator-mutex", "-lock-", ""},               // InterProcessMutex, and go-zookeeper's Lock
		{"kazoo", "__lock__", "__rlock__"},            // Lock, WriteLock and ReadLock
	}
)

// curatorWriter marks a writer. Curator's readers take every node for a writer
// that has it anywhere in its name.
const curatorWriter = "__WRIT__"

func layoutOf(name string) (*layout, error) {
	if name == ownLayout.name {
		return nil, nil
	}
	i := slices.IndexFunc(otherLayouts, func(l layout) bool { return l.name == name })
	if i < 0 {
		return nil, errors.New("neither dlock nor curator nor curator-mutex nor kazoo")
	}
	return &otherLayouts[i], nil
}

// isKind reports whether a node with this prefix is a writer or a reader of
// this layout.
func (l *layout) isKind(prefix string) bool {
	return strings.HasSuffix(prefix, l.writer) || l.reader != "" && strings.HasSuffix(prefix, l.reader)
}

// prefix translates a prefix of dlock into the prefix to store. It fails if the
// library would misread the result, or has no readers and the prefix is a
// reader's.
func (l *layout) prefix(prefix string) (string, error) {
	if l == nil {
		return prefix, nil
	}
	if l.reader == "" && strings.HasSuffix(prefix, ownLayout.reader) {
		return "", fmt.Errorf("zkdriver: names=%s: %w: that library has no readers, so %q cannot be made", l.name, errors.ErrUnsupported, prefix)
	}
	if l.name == "curator" && strings.Contains(prefix, curatorWriter) {
		return "", fmt.Errorf("zkdriver: names=curator: %w: the host name in %q contains %q", driver.ErrBadName, prefix, curatorWriter)
	}
	return l.translate(prefix, &ownLayout, l), nil
}

// translate converts a prefix from one layout to another by replacing its end,
// which tells the mode. If either layout has no such end, the prefix stays as
// it is.
func (l *layout) translate(prefix string, from, to *layout) string {
	if before, ok := strings.CutSuffix(prefix, from.writer); ok {
		return before + to.writer
	}
	if before, ok := strings.CutSuffix(prefix, from.reader); ok && from.reader != "" && to.reader != "" {
		return before + to.reader
	}
	return prefix
}

// shown returns the name by which callers know a stored node. If the stored
// name already is one of dlock, a tilde is appended, because callers know
// another node by the plain name. A name with a tilde counts as a writer's.
func (l *layout) shown(name string) string {
	prefix, _, ok := splitName(name)
	switch {
	case l == nil || !ok:
		return name
	case l.isKind(prefix):
		return l.translate(prefix, l, &ownLayout) + name[len(prefix):]
	case ownLayout.isKind(prefix):
		return name + escape
	}
	return name
}

// stored is the inverse of shown.
func (l *layout) stored(name string) string {
	if l == nil {
		return name
	}
	if plain, ok := strings.CutSuffix(name, escape); ok {
		return plain
	}
	prefix, _, _ := splitName(name)
	return l.translate(prefix, &ownLayout, l) + name[len(prefix):]
}

func (l *layout) shownNodes(nodes []driver.Node) []driver.Node { return l.eachName(nodes, l.shown) }

func (l *layout) storedNodes(nodes []driver.Node) []driver.Node { return l.eachName(nodes, l.stored) }

func (l *layout) eachName(nodes []driver.Node, f func(string) string) []driver.Node {
	if l == nil {
		return nodes
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].Name = f(nodes[i].Name)
	}
	return nodes
}

func (l *layout) spec(n driver.NodeSpec) (driver.NodeSpec, error) {
	prefix, err := l.prefix(n.Prefix)
	if find := n.Predecessor; find != nil && l != nil {
		n.Predecessor = func(ahead []driver.Node) int { return find(l.shownNodes(ahead)) }
	}
	n.Prefix = prefix
	return n, err
}

// checkLayout removes the new node and returns an error if a contender ahead
// has a name of another layout, because the program of that contender would not
// wait for the new node. It lists the queue unless the nodes ahead are already
// known.
func (s *session) checkLayout(made *created, data []byte) error {
	if !made.Known {
		nodes, err := s.listNodes(made.queue)
		if err != nil {
			s.discard(made.queue, made.Place, data)
			return err
		}
		if i := slices.Index(nodes, made.Node); i >= 0 {
			made.Ahead, made.Behind, made.Known = nodes[:i], i < len(nodes)-1, true
		}
	}
	for _, n := range made.Ahead {
		if other := s.settings.layout.otherThan(n.Name); other != "" {
			s.discard(made.queue, made.Place, data)
			return fmt.Errorf("zkdriver: create a node in %s: %w: its node %s has a name like those of names=%s, which do not respect names=%s",
				s.settings.queuePath(made.queue), errors.ErrUnsupported, zkconn.Printable(n.Name), other, s.settings.layout.name)
		}
	}
	return nil
}

// otherThan returns the name of the layout to which a stored node belongs, or
// "" if it belongs to this layout or to none that is known.
func (l *layout) otherThan(name string) string {
	prefix, _, _ := splitName(name)
	if l.isKind(prefix) {
		return ""
	}
	for _, other := range append(otherLayouts, ownLayout) {
		if other.isKind(prefix) {
			return other.name
		}
	}
	return ""
}
