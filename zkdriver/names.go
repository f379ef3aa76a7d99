package zkdriver

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// reserved is the server's own node.
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

// seqDigits is the number of digits that ZooKeeper appends.
const seqDigits = 10

// sequenceOf returns the sequence of a child, and whether it is a contender.
func sequenceOf(child string) (seq int64, ok bool) {
	if !endsInSequence(child) {
		return 0, false
	}
	for _, digit := range []byte(child[len(child)-seqDigits:]) {
		seq = 10*seq + int64(digit-'0')
	}
	return seq, true
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

// successor is the name of the child that holds the contenders of a queue whose
// node has no sequences left and cannot be removed: see rollover.go. It cannot
// be a segment of a queue name, because driver.CheckQueue refuses no-break
// spaces.
const successor = "new\u00a0sequences"

// successorOf returns the name of the queue's successor, as a queue.
func successorOf(queue string) string { return queue + "/" + successor }

// predecessorOf reverses successorOf. It reports whether the queue is a
// successor.
func predecessorOf(queue string) (before string, ok bool) {
	return strings.CutSuffix(queue, "/"+successor)
}

// escapeSegment returns the child that stands for a segment of a queue name.
func escapeSegment(segment string) string {
	if endsInSequence(strings.TrimRight(segment, escape)) {
		return segment + escape
	}
	return segment
}

// unescapeSegment reverses escapeSegment. The child must not be a contender.
func unescapeSegment(child string) string {
	if endsInSequence(strings.TrimRight(child, escape)) {
		return strings.TrimSuffix(child, escape)
	}
	return child
}

// queuePath returns the path of a queue's node. The chroot is not escaped.
func (s *settings) queuePath(queue string) string {
	return s.chroot + "/" + eachSegment(queue, escapeSegment)
}

// eachSegment applies f to each segment of a path. It allocates only if f
// changes one, which is rare.
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

// checkPlace refuses a place that no Create can have returned.
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

// checkName refuses a text that cannot be the name of a node in a queue.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("zkdriver: %w: %q names no node of a queue", driver.ErrBadName, name)
	}
	if err := checkCharacters(name); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	return nil
}

// checkSegments checks what driver.CheckQueue checks, and refuses names that
// ZooKeeper itself refuses.
func checkSegments(path string) error {
	if err := driver.CheckQueue(path); err != nil {
		return err
	}
	return checkCharacters(path)
}

// checkCharacters refuses characters that the server does not accept in a path.
// The server checks UTF-16 code units, and so refuses the surrogates that stand
// for characters beyond U+FFFF.
func checkCharacters(s string) error {
	for i, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Errorf("%w: %q has a character at byte %d that ZooKeeper does not take", driver.ErrBadName, s, i)
		}
	}
	return nil
}

// splitPath splits a path, as reported by the server, into queue and node name.
func (s *settings) splitPath(path string) (queue, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, s.chroot+"/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i <= 0 {
		return "", "", false
	}
	return eachSegment(rest[:i], unescapeSegment), rest[i+1:], true
}
