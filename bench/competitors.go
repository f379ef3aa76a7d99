package main

import (
	"os"
	"os/exec"

	"github.com/dlock-go/dlock/internal/zktest"
)

type competitor struct {
	name, label string // for flags, and in tables
	kind        kind
	// The error says why the competitor cannot run on this machine.
	command func() (*exec.Cmd, error)
	warmUp  int // in milliseconds
}

func (c competitor) id() string { return c.name }

const (
	warmUpGo   = 300  // in milliseconds, also for Python
	warmUpJava = 6000 // until the JIT has compiled the code
)

type kind int

const (
	ours    kind = iota // this library with its defaults
	variant             // this library, older or with an option
	peer                // another lock on the same ZooKeeper
)

func (c competitor) isOurs() bool { return c.kind != peer }

func competitors() []competitor {
	return []competitor{
		{"dlock", "dlock", ours, goChild("dlock"), warmUpGo},
		{"dlock-list", "dlock, `handover=list`", variant, goChild("dlock-list"), warmUpGo},
		{"zk.Lock", "go-zookeeper `zk.Lock`", peer, goChild("zk.Lock"), warmUpGo},
		{"curator", "Curator `InterProcessMutex`", peer, javaChild("mutex"), warmUpJava},
		{"curator-rw", "Curator `InterProcessReadWriteLock`", peer, javaChild("rw"), warmUpJava},
		{"kazoo", "kazoo `Lock`", peer, pythonChild, warmUpGo},
	}
}

func goChild(library string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		self, err := os.Executable()
		return exec.Command(self, "-child", library), err
	}
}

func javaChild(lock string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) { return zktest.Curator("peers/Bench.java", lock) }
}

func pythonChild() (*exec.Cmd, error) { return zktest.Kazoo("peers/bench.py") }
