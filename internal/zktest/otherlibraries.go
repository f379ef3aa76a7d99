package zktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// curatorVariable names a directory with Curator's jars, for machines without
// Debian's packages.
const curatorVariable = "CURATOR_JARS"

// debianCuratorJars lists the jars that Curator's recipes need. ZooKeeper's
// client needs the netty jars.
var debianCuratorJars = []string{
	"curator-recipes", "curator-framework", "curator-client", "guava", "zookeeper", "zookeeper-jute",
	"slf4j-api", "slf4j-nop", "snappy-java", "metrics-core",
	"netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver",
	"netty-transport", "netty-transport-native-epoll", "netty-transport-native-unix-common",
}

// Java returns the path of the Java launcher.
func Java() (string, error) { return findJava(os.Getenv("JAVA_HOME")) }

// Curator returns a command that compiles and runs a Java program that uses
// Curator's recipes. The error says what is not installed.
func Curator(source string, args ...string) (*exec.Cmd, error) {
	jars, err := findCurator(os.Getenv(curatorVariable), debianJars)
	if err != nil {
		return nil, err
	}
	java, err := Java()
	if err != nil {
		return nil, fmt.Errorf("%w: install default-jdk-headless", err)
	}
	modules, err := exec.Command(java, "--list-modules").Output()
	if err != nil || !strings.Contains(string(modules), "jdk.compiler") {
		return nil, fmt.Errorf("%s has no Java compiler: install default-jdk-headless", java)
	}
	return exec.Command(java, append([]string{"-cp", jars, source}, args...)...), nil
}

func findCurator(given, debian string) (string, error) {
	if given != "" {
		if found, _ := filepath.Glob(filepath.Join(given, "curator-recipes*.jar")); len(found) == 0 {
			return "", fmt.Errorf("%s is set but %s holds no curator-recipes*.jar", curatorVariable, given)
		}
		return filepath.Join(given, "*"), nil
	}
	paths, err := classPath(debian, debianCuratorJars)
	if err != nil {
		return "", fmt.Errorf("%w: install libcurator-recipes-java, or set %s", err, curatorVariable)
	}
	return paths, nil
}

// Kazoo returns a command that runs a Python program that uses kazoo. It
// prefers the system's Python, for which Debian packages kazoo. The error says
// what is not installed.
func Kazoo(source string, args ...string) (*exec.Cmd, error) {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import kazoo").Run() == nil {
			return exec.Command(python, append([]string{source}, args...)...), nil
		}
	}
	return nil, errors.New("no kazoo: install python3-kazoo")
}
