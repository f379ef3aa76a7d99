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

// competitor is a library that takes part.
type competitor struct {
	name   string
	label  string // in tables and charts
	kind   kind
	server string // zookeeper or etcd
	// command returns how its child is run; the error says why it cannot be had. The directory is
	// there for files that the command needs.
	command func(dir string) (*exec.Cmd, error)
	// warm is for how long it works, in milliseconds, before anything is measured: a virtual machine
	// that compiles as it goes needs that.
	warm int
	// only names the workloads that it is for; none means all.
	only []string
}

const (
	warmGo   = 300 // and Python
	warmJava = 6000
)

type kind int

const (
	ours      kind = iota // the library as it is by default
	variant               // ours, with a setting or from an older revision
	peer                  // another lock on the same server
	orienting             // on another server, or no lock: not compared
)

// isOurs reports whether the competitor is this library.
func (c competitor) isOurs() bool { return c.kind == ours || c.kind == variant }

func competitors() []competitor {
	return []competitor{
		{"dlock", "dlock", ours, zookeeper, goChild("dlock"), warmGo, nil},
		{"dlock-list", "dlock, `handover=list`", variant, zookeeper, goChild("dlock-list"), warmGo, nil},
		{"dlock-retention", "dlock, `WithRetention`", variant, zookeeper, goChild("dlock-retention"), warmGo, []string{"free", "process", "processes"}},
		{"zk.Lock", "go-zookeeper `zk.Lock`", peer, zookeeper, goChild("zk.Lock"), warmGo, nil},
		{"curator", "Curator `InterProcessMutex`", peer, zookeeper, javaChild("mutex"), warmJava, nil},
		{"curator-rw", "Curator `InterProcessReadWriteLock`", peer, zookeeper, javaChild("rw"), warmJava, nil},
		{"kazoo", "kazoo `Lock`", peer, zookeeper, pythonChild, warmGo, nil},
		{"etcd", "etcd `concurrency.Mutex`", orienting, etcd, goChild("etcd"), warmGo, nil},
		{"bare", "the two bare requests", orienting, zookeeper, goChild("bare"), warmGo, []string{"free"}},
	}
}

func goChild(library string) func(string) (*exec.Cmd, error) {
	return func(string) (*exec.Cmd, error) {
		self, err := os.Executable()
		return exec.Command(self, "-child", library), err
	}
}

// javaChild runs the program from its source: Java compiles it first.
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

func unpack(dir, name string) (string, error) {
	text, err := sources.ReadFile("peers/" + name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, text, 0o600)
}
