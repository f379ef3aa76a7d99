package zkdriver

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// reserved is the node that the server keeps to itself.
const reserved = "zookeeper"

// A queue is the node of its name below the chroot, and a contender a child of
// it, so that people find with ZooKeeper's own tools what they named. The
// queues below a queue are children of it, too. So the name of a child tells
// what it is:
//
//   - It ends in ten or more digits: a contender. ZooKeeper appends exactly ten
//     digits to the name of a sequential node, with nothing before them if the
//     prefix of another library ends otherwise than in a dash.
//   - Else it is a segment of the names of queues. A segment that ends in ten
//     or more digits, with any number of tildes behind them, is stored with one
//     tilde more.

// seqDigits is how many digits ZooKeeper appends.
const seqDigits = 10

// sequenceOf returns the sequence of a child that is a contender. ok is false
// for any other child.
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

// escapeSegment returns the name of the child that stands for a segment of a
// queue's name.
func escapeSegment(segment string) string {
	if endsInSequence(strings.TrimRight(segment, escape)) {
		return segment + escape
	}
	return segment
}

// unescapeSegment undoes escapeSegment. The child is no contender.
func unescapeSegment(child string) string {
	if endsInSequence(strings.TrimRight(child, escape)) {
		return strings.TrimSuffix(child, escape)
	}
	return child
}

// queuePath returns the path of a queue's node. The chroot is taken as it is.
func (s *settings) queuePath(queue string) string {
	return s.chroot + "/" + eachSegment(queue, escapeSegment)
}

// eachSegment returns the path with f applied to each segment.
func eachSegment(path string, f func(string) string) string {
	for segment := range strings.SplitSeq(path, "/") {
		if f(segment) != segment {
			return rewriteSegments(path, f)
		}
	}
	return path // without an allocation: most paths stay as they are
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

// checkName refuses what cannot be the name of a node of a queue.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("zkdriver: %w: %q names no node of a queue", driver.ErrBadName, name)
	}
	if err := checkCharacters(name); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	return nil
}

// checkCharacters refuses what the server refuses in a path: it looks at UTF-16, in which
// characters beyond the first 65,536 are surrogates.
func checkCharacters(s string) error {
	for i, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Errorf("%w: %q has a character at byte %d that ZooKeeper does not take", driver.ErrBadName, s, i)
		}
	}
	return nil
}

// splitPath undoes queuePath and the name after it. It is for paths that the server reports.
func (s *settings) splitPath(path string) (queue, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, s.chroot+"/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i <= 0 {
		return "", "", false
	}
	return eachSegment(rest[:i], unescapeSegment), rest[i+1:], true
}
