package zktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/internal/testenv"
)

type installation struct {
	java      string
	classPath string
}

var installed = sync.OnceValues(func() (installation, error) {
	return findInstallation(os.Getenv("ZOOKEEPER_HOME"), os.Getenv("JAVA_HOME"), debianJars)
})

const debianJars = "/usr/share/java"

// debianClassPath lists the needed jars that are not in the manifest of
// zookeeper.jar.
var debianClassPath = []string{
	"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "snappy-java", "metrics-core",
	"netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver",
	"netty-transport", "netty-transport-native-epoll", "netty-transport-native-unix-common",
}

func findInstallation(zookeeperHome, javaHome, jars string) (installation, error) {
	if !testenv.CanRunProcesses {
		return installation{}, errors.New("needs a Unix system")
	}
	java, err := findJava(javaHome)
	if err != nil {
		return installation{}, err
	}
	classPath, err := findJars(zookeeperHome, jars)
	return installation{java: java, classPath: classPath}, err
}

func findJava(javaHome string) (string, error) {
	if java, err := exec.LookPath(filepath.Join(javaHome, "bin", "java")); javaHome != "" && err == nil {
		return java, nil
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", errors.New("no java on the PATH")
	}
	return java, nil
}

// findJars fails if zookeeperHome is unusable, because the user wants that
// release.
func findJars(zookeeperHome, jars string) (string, error) {
	if zookeeperHome != "" {
		lib := filepath.Join(zookeeperHome, "lib")
		if found, _ := filepath.Glob(filepath.Join(lib, "zookeeper-[0-9]*.jar")); len(found) == 0 {
			return "", fmt.Errorf("ZOOKEEPER_HOME is set but %s holds no zookeeper-*.jar", lib)
		}
		return filepath.Join(lib, "*"), nil
	}
	paths, err := classPath(jars, debianClassPath)
	if err != nil {
		return "", fmt.Errorf("%w and no ZOOKEEPER_HOME", err)
	}
	return paths, nil
}

// classPath returns the named jars in a directory. Only the first must exist.
func classPath(dir string, names []string) (string, error) {
	var paths []string
	for i, name := range names {
		path := filepath.Join(dir, name+".jar")
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		} else if i == 0 {
			return "", fmt.Errorf("no %s", path)
		}
	}
	return strings.Join(paths, string(os.PathListSeparator)), nil
}
