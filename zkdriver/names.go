package zkdriver

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// reserved is the name of the server's own node, which cannot be a queue.
const reserved = "zookeeper"

// A queue's node has the queue's name, below the chroot, so that operators find
// it. Its children are the queue's contenders and the queues below it, told
// apart by their names:
//
//   - A name that ends in ten or more digits is a contender. ZooKeeper appends
//     ten digits to a sequential node. The text before them differs between
//     libraries.
//   - The constant successor names the node to which the contenders move once
//     the sequences of the queue's own node are used up.
//   - Any other name is a segment of queue names. A segment that ends in ten or
//     more digits, perhaps with tildes behind, gets one more tilde, so that it
//     does not look like a contender.

const seqDigits = 10

// sequenceOf returns the sequence in a child's name, if it is a contender.
func sequenceOf(child string) (seq int64, ok bool) {
	if !endsInSequence(child) {
		return 0, false
	}
	for _, digit := range []byte(child[len(child)-seqDigits:]) {
		seq = 10*seq + int64(digit-'0')
	}
	return seq, true
}

func splitName(child string) (prefix string, seq int64, ok bool) {
	seq, ok = sequenceOf(child)
	if !ok {
		return "", 0, false
	}
	return child[:len(child)-seqDigits], seq, true
}

func endsInSequence(s string) bool {
	if len(s) < seqDigits {
		return false
	}
	for _, c := range []byte(s[len(s)-seqDigits:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

const escape = "~"

// successor holds a queue's contenders once its own sequences are used up: see
// queue.go. driver.CheckQueue refuses the no-break space in queue names.
const successor = "new\u00a0sequences"

func successorOf(queue string) string { return queue + "/" + successor }

// predecessorOf returns the queue to which a successor belongs.
func predecessorOf(queue string) (before string, ok bool) {
	return strings.CutSuffix(queue, "/"+successor)
}

// Values are not below the queues' own nodes, which are removed when empty.
const (
	keptValues = "kept\u00a0values"
	keptValue  = "kept\u00a0value"
)

func (s *settings) valuePath(queue string) string {
	return s.chroot + "/" + keptValues + "/" + queue + "/" + keptValue
}

func escapeSegment(segment string) string {
	if endsInSequence(strings.TrimRight(segment, escape)) {
		return segment + escape
	}
	return segment
}

func unescapeSegment(child string) string {
	if endsInSequence(strings.TrimRight(child, escape)) {
		return strings.TrimSuffix(child, escape)
	}
	return child
}

// queuePath escapes the queue's name but not the chroot.
func (s *settings) queuePath(queue string) string {
	return s.chroot + "/" + eachSegment(queue, escapeSegment)
}

func eachSegment(path string, f func(string) string) string {
	for segment := range strings.SplitSeq(path, "/") {
		if f(segment) != segment {
			return rewriteSegments(path, f)
		}
	}
	return path
}

func rewriteSegments(path string, f func(string) string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		segments[i] = f(segment)
	}
	return strings.Join(segments, "/")
}

func (s *settings) checkQueue(queue string) error {
	if err := checkSegments(queue); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	if first, _, _ := strings.Cut(queue, "/"); s.chroot == "" && first == reserved {
		return fmt.Errorf("zkdriver: %w: /zookeeper belongs to the server", driver.ErrBadName)
	}
	return nil
}

func (s *settings) checkPlace(queue string, p driver.Place) error {
	if err := s.checkQueue(queue); err != nil {
		return err
	}
	return checkName(p.Name)
}

func checkPrefix(prefix string) error {
	err := driver.CheckPrefix(prefix)
	if err == nil {
		err = checkCharacters(prefix)
	}
	if err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("zkdriver: %w: %q names no node of a queue", driver.ErrBadName, name)
	}
	if err := checkCharacters(name); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	return nil
}

func checkSegments(path string) error {
	if err := driver.CheckQueue(path); err != nil {
		return err
	}
	return checkCharacters(path)
}

// checkCharacters also rejects characters beyond U+FFFF, which ZooKeeper sees
// as UTF-16 surrogates.
func checkCharacters(s string) error {
	for i, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Errorf("%w: %q has a character at byte %d that ZooKeeper does not take", driver.ErrBadName, s, i)
		}
	}
	return nil
}

func (s *settings) splitPath(path string) (queue, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, s.chroot+"/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i <= 0 {
		return "", "", false
	}
	return eachSegment(rest[:i], unescapeSegment), rest[i+1:], true
}

// A layout gives nodes another lock library's names, so that its clients and
// dlock's wait for each other. A nil layout keeps dlock's names.
type layout struct {
	name string
	// The texts before the sequence; without readers, reader is empty.
	writer, reader string
	// lacks matches prefixes for which the library would not wait.
	lacks *regexp.Regexp
}

var (
	units        = regexp.MustCompile(`-[SH]\d+of\d+-$`)
	ownLayout    = layout{"dlock", "-W-", "-R-", nil}
	otherLayouts = []layout{
		{"curator", "-" + curatorWriter, "-__READ__", units},                          // InterProcessReadWriteLock
		{"curator-mutex", "-lock-", "", regexp.MustCompile("-R-$|" + units.String())}, // InterProcessMutex, and go-zookeeper's Lock
		{"kazoo", "__lock__", "__rlock__", units},                                     // Lock, WriteLock and ReadLock
	}
)

// curatorWriter in a name makes Curator's readers see a writer.
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

// isKind reports whether the prefix marks a writer or a reader in layout l.
func (l *layout) isKind(prefix string) bool {
	return strings.HasSuffix(prefix, l.writer) || l.reader != "" && strings.HasSuffix(prefix, l.reader)
}

// prefix translates a prefix, unless the library would misread the result or
// ignore the node.
func (l *layout) prefix(prefix string) (string, error) {
	if l == nil {
		return prefix, nil
	}
	if l.lacks != nil && l.lacks.MatchString(prefix) {
		return "", fmt.Errorf("zkdriver: names=%s: %w: that library would not wait for a contender of this kind, so %q cannot be made", l.name, errors.ErrUnsupported, prefix)
	}
	if l.name == "curator" && strings.Contains(prefix, curatorWriter) {
		return "", fmt.Errorf("zkdriver: names=curator: %w: the host name in %q contains %q", driver.ErrBadName, prefix, curatorWriter)
	}
	return l.translate(prefix, &ownLayout, l), nil
}

// translate replaces the end of a writer's or a reader's prefix. Other prefixes
// stay unchanged.
func (l *layout) translate(prefix string, from, to *layout) string {
	if before, ok := strings.CutSuffix(prefix, from.writer); ok {
		return before + to.writer
	}
	if before, ok := strings.CutSuffix(prefix, from.reader); ok && from.reader != "" && to.reader != "" {
		return before + to.reader
	}
	return prefix
}

// shown returns a stored node's name for callers. A name that only looks like
// dlock's gets a tilde, so that stored does not translate it.
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

// checkLayout removes the new node if a contender ahead would not respect it.
func (s *session) checkLayout(made *madeNode, data []byte) error {
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

// otherThan returns the other layout to which a stored node belongs, or "".
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
