package main

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// libraryVersions returns the versions of the libraries that it finds.
func libraryVersions() (facts []fact) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/go-zookeeper/zk", "go.etcd.io/etcd/client/v3":
				facts = append(facts, fact{"`" + d.Path + "`", strings.TrimPrefix(d.Version, "v")})
			}
		}
	}
	if v := jarVersion("curator-recipes"); v != "" {
		facts = append(facts, fact{"Curator", v})
	}
	if v := jarVersion("zookeeper"); v != "" {
		facts = append(facts, fact{"ZooKeeper (Curator's client)", v})
	}
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if v := output(python, "-c", "import kazoo; print(kazoo.__version__)"); v != "" {
			return append(facts, fact{"kazoo", v})
		}
	}
	return facts
}

// jarVersion returns the version of a jar. On Debian the name without a version is a
// link to a file whose name has the version.
func jarVersion(name string) string {
	target, err := os.Readlink(filepath.Join("/usr/share/java", name+".jar"))
	if err != nil {
		return ""
	}
	m := regexp.MustCompile(`-([0-9.]+[0-9])\.jar$`).FindStringSubmatch(target)
	if m == nil {
		return ""
	}
	return m[1]
}
