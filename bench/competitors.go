package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	variant               // ours, with a setting
	peer                  // another lock on the same server
	orienting             // on another server, or no lock: not compared
)

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

const debianJars = "/usr/share/java"

// curatorJars is what Curator's recipes need at run time; netty belongs to ZooKeeper's client.
var curatorJars = []string{
	"curator-recipes", "curator-framework", "curator-client", "guava", "zookeeper", "zookeeper-jute",
	"slf4j-api", "slf4j-nop", "snappy-java", "metrics-core",
	"netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver",
	"netty-transport", "netty-transport-native-epoll", "netty-transport-native-unix-common",
}

// javaChild runs the program from its source: Java compiles it first.
func javaChild(lock string) func(string) (*exec.Cmd, error) {
	return func(dir string) (*exec.Cmd, error) {
		var paths []string
		for _, jar := range curatorJars {
			path := filepath.Join(debianJars, jar+".jar")
			if _, err := os.Stat(path); err == nil {
				paths = append(paths, path)
			} else if strings.HasPrefix(jar, "curator") {
				return nil, fmt.Errorf("no %s: install libcurator-recipes-java", path)
			}
		}
		java, err := findJava()
		if err != nil {
			return nil, err
		}
		if modules, err := exec.Command(java, "--list-modules").Output(); err != nil || !strings.Contains(string(modules), "jdk.compiler") {
			return nil, errors.New("no Java compiler: install default-jdk-headless")
		}
		source, err := unpack(dir, "Bench.java")
		return exec.Command(java, "-cp", strings.Join(paths, string(os.PathListSeparator)), source, lock), err
	}
}

func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if java, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return java, nil
		}
	}
	return exec.LookPath("java")
}

// pythonChild prefers the Python of the system, which Debian's packages belong to.
func pythonChild(dir string) (*exec.Cmd, error) {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import kazoo").Run() == nil {
			source, err := unpack(dir, "bench.py")
			return exec.Command(python, source), err
		}
	}
	return nil, errors.New("no kazoo: install python3-kazoo")
}

func unpack(dir, name string) (string, error) {
	text, err := sources.ReadFile("peers/" + name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, text, 0o600)
}
