package zkdriver

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// reserved is the name of the server's own node, which cannot be a queue.
const reserved = "zookeeper"

// A queue's node has the queue's name, below the chroot, and its contenders are
// children of that node, so that operators find names as given when using
// ZooKeeper's own tools. Queues below the queue are children of its node, too.
// The name of a child tells them apart:
//
//   - A name that ends in ten or more digits is a contender. ZooKeeper appends
//     exactly ten digits to the name of a sequential node. The character before
//     them need not be a dash, because other libraries use other prefixes.
//   - The name successor is the node in which the queue goes on once its
//     sequences are used up.
//   - Any other name is a segment of queue names. A segment that ends in ten or
//     more digits, with any number of tildes behind them, is stored with one
//     more tilde.

const seqDigits = 10

// sequenceOf returns the sequence number in the name of a queue's child. If ok
// is false, the child is not a contender.
func sequenceOf(child string) (seq int64, ok bool) {
	if !endsInSequence(child) {
		return 0, false
	}
	for _, digit := range []byte(child[len(child)-seqDigits:]) {
		seq = 10*seq + int64(digit-'0')
	}
	return seq, true
}

// splitName splits a contender's name before its sequence.
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

// successor is the child that holds a queue's contenders once the queue's own
// sequence numbers are used up: see rollover.go. The no-break space keeps it
// apart from queue names, in which driver.CheckQueue refuses that character.
const successor = "new\u00a0sequences"

func successorOf(queue string) string { return queue + "/" + successor }

// predecessorOf returns the queue whose successor node the given path names. If
// ok is false, the path does not name a successor.
func predecessorOf(queue string) (before string, ok bool) {
	return strings.CutSuffix(queue, "/"+successor)
}

// keptValues is the node that has the values of [driver.Inspector] below it. The
// value of the queue stock/42 is the data of keptValues/stock/42/keptValue. It
// is not stored below the queue's own node, because that node must be
// removable, and its children are counted. The no-break spaces keep these nodes
// apart from queue names.
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

// queuePath returns the path of a queue's node. It escapes the queue's name but
// not the chroot.
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

// checkSegments returns an error if driver.CheckQueue or ZooKeeper would refuse
// the path.
func checkSegments(path string) error {
	if err := driver.CheckQueue(path); err != nil {
		return err
	}
	return checkCharacters(path)
}

// checkCharacters rejects characters that ZooKeeper does not accept in a path.
// ZooKeeper checks UTF-16 code units, so it rejects the surrogates of every
// character beyond U+FFFF.
func checkCharacters(s string) error {
	for i, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Errorf("%w: %q has a character at byte %d that ZooKeeper does not take", driver.ErrBadName, s, i)
		}
	}
	return nil
}

// splitPath splits a path reported by the server into queue and node name.
func (s *settings) splitPath(path string) (queue, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, s.chroot+"/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i <= 0 {
		return "", "", false
	}
	return eachSegment(rest[:i], unescapeSegment), rest[i+1:], true
}
