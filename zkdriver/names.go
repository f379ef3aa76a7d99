package zkdriver

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// reserved is the node that belongs to the server.
const reserved = "zookeeper"

// The node of a queue has the queue's name, below the chroot, and a contender
// is a child of that node. So operators find the names that they gave with
// ZooKeeper's own tools. The queues below a queue are children of its node,
// too. The name of a child shows whether it is a contender or such a queue:
//
//   - A name that ends in ten or more digits is a contender. ZooKeeper appends
//     exactly ten digits to the name of a sequential node. The character before
//     them need not be a dash, because other libraries use other prefixes.
//   - The name successor is the node where the queue goes on when its sequences
//     are used up.
//   - Any other name is a segment of the names of queues. A segment that ends
//     in ten or more digits, with any number of tildes behind them, is stored
//     with one tilde more.

// seqDigits is the number of digits that ZooKeeper appends.
const seqDigits = 10

// sequenceOf returns the sequence of a child that is a contender. If the child
// is not a contender, ok is false.
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

// successor is the name of the child in which the contenders of a queue are once
// the sequences of the queue's node are used up and the node cannot be removed:
// see rollover.go. It has no-break spaces, which driver.CheckQueue refuses, so it
// is no segment of a queue's name.
const successor = "new\u00a0sequences"

// successorOf returns the queue whose node is the successor of a queue.
func successorOf(queue string) string { return queue + "/" + successor }

// predecessorOf reverses successorOf. If the queue is no successor, ok is false.
func predecessorOf(queue string) (before string, ok bool) {
	return strings.CutSuffix(queue, "/"+successor)
}

// escapeSegment returns the name of the child that stands for a segment of a
// queue's name.
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

// eachSegment returns the path with f applied to each segment. It allocates
// only if f changes a segment; most paths stay as they are.
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

// checkPlace refuses a place whose queue or name is not valid. No Create can
// have returned such a place.
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

// checkCharacters refuses characters that the server refuses in a path. The
// server checks UTF-16 code units. In UTF-16 a character beyond U+FFFF is a
// pair of surrogates, which the server refuses.
func checkCharacters(s string) error {
	for i, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Errorf("%w: %q has a character at byte %d that ZooKeeper does not take", driver.ErrBadName, s, i)
		}
	}
	return nil
}

// splitPath splits a path that the server reports into the queue and the name
// of the node.
func (s *settings) splitPath(path string) (queue, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, s.chroot+"/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i <= 0 {
		return "", "", false
	}
	return eachSegment(rest[:i], unescapeSegment), rest[i+1:], true
}
