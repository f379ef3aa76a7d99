package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/dlock-go/dlock/internal/zktest"
)

// describe describes the machine, the servers and the libraries. It leaves out what it
// cannot find out. dir is a directory for files, which the caller removes.
func describe(servers map[string]server, dir string) (facts []fact) {
	add := func(name, value string) {
		if value = strings.TrimSpace(value); value != "" {
			facts = append(facts, fact{name, value})
		}
	}
	add("Processor", fmt.Sprintf("%s, %d cores", field("/proc/cpuinfo", "model name"), runtime.NumCPU()))
	add("Memory", memory())
	add("System", fmt.Sprintf("%s, Linux %s", strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`), output("uname", "-r")))
	add("File system of the servers' data", output("stat", "-f", "-c", "%T", os.TempDir()))
	add("Go", runtime.Version())
	if java, err := zktest.Java(); err == nil {
		add("Java", javaVersion(java))
	}
	if python, err := pythonChild(dir); err == nil {
		add("Python", strings.TrimPrefix(output(python.Path, "--version"), "Python "))
	}
	for _, name := range []string{zookeeper, etcd} {
		if s := servers[name]; s != nil {
			add(name+" (server)", s.version())
		}
	}
	return append(facts, libraryVersions()...)
}

// field returns the value of the first line "name : value" or "name=value" of a file.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return ""
}

func memory() string {
	var kb float64
	if _, err := fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kb); err != nil {
		return ""
	}
	return fmt.Sprintf("%.0f GB", kb/1e6)
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func javaVersion(java string) string {
	out, err := exec.Command(java, "-version").CombinedOutput()
	if err != nil {
		return ""
	}
	_, version, _ := strings.Cut(string(out), `"`)
	version, _, _ = strings.Cut(version, `"`)
	return version
}
