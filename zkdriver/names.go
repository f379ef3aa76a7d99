package zkdriver

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// reserved is the node that the server keeps to itself.
const reserved = "zookeeper"

// A queue is the node of its name below the chroot, and a contender a child of it, so that
// people find with ZooKeeper's own tools what they named.

func (s *settings) queuePath(queue string) string { return s.chroot + "/" + queue }

func (s *settings) checkQueue(queue string) error {
	if err := checkSegments(queue); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	if first, _, _ := strings.Cut(queue, "/"); s.chroot == "" && first == reserved {
		return fmt.Errorf("zkdriver: %w: /zookeeper belongs to the server", driver.ErrName)
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
		return fmt.Errorf("zkdriver: %w: %q names no node of a queue", driver.ErrName, name)
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
			return fmt.Errorf("%w: %q has a character at byte %d that ZooKeeper does not take", driver.ErrName, s, i)
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
	return rest[:i], rest[i+1:], true
}
