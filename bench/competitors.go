package main

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/dlock-go/dlock/internal/zktest"
)

//go:embed peers/Bench.java peers/bench.py
var sources embed.FS

// competitor is a lock library to measure, with its options.
type competitor struct {
	name, label string // for flags, and in tables
	kind        kind
	// command returns the command that starts the competitor's child
	// process, which may write files to dir. The error says why the
	// competitor cannot run on this machine.
	command func(dir string) (*exec.Cmd, error)
	warmUp  int // in milliseconds
}

func (c competitor) id() string { return c.name }

const (
	warmUpGo   = 300  // also for Python
	warmUpJava = 6000 // to compile
)

type kind int

const (
	ours    kind = iota // this library with its defaults
	variant             // this library with an option, or from an older revision
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

func goChild(library string) func(string) (*exec.Cmd, error) {
	return func(string) (*exec.Cmd, error) {
		self, err := os.Executable()
		return exec.Command(self, "-child", library), err
	}
}

// javaChild returns a command that runs Bench.java, which Java compiles on the
// fly.
func javaChild(lock string) func(string) (*exec.Cmd, error) {
	return func(dir string) (*exec.Cmd, error) {
		source, err := unpack(dir, "Bench.java")
		if err != nil {
			return nil, err
		}
		return zktest.Curator(source, lock)
	}
}

func pythonChild(dir string) (*exec.Cmd, error) {
	source, err := unpack(dir, "bench.py")
	if err != nil {
		return nil, err
	}
	return zktest.Kazoo(source)
}

// unpack writes an embedded source to dir.
func unpack(dir, name string) (string, error) {
	text, err := sources.ReadFile("peers/" + name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, text, 0o600)
}
