package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// compileLibrary compiles a C file to a library that changes what functions of the
// C library do. It needs Linux and a C compiler, as the race detector does.
func compileLibrary(name string, source []byte) ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("testenv: %s needs Linux", name)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		if cc, err = exec.LookPath("gcc"); err != nil {
			return nil, errors.New("testenv: " + name + " needs a C compiler")
		}
	}
	dir, err := os.MkdirTemp("", "testenv-"+name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, library := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, err
	}
	compile := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", library, file, "-ldl")
	if output, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("testenv: %s: %w: %s", cc, err, output)
	}
	return os.ReadFile(library)
}

// preload writes a library to a file. It returns the beginning of a command line that
// makes a program use the library and sets a variable of its environment.
func preload(path string, library []byte, variable string) ([]string, error) {
	if err := os.WriteFile(path, library, 0o700); err != nil {
		return nil, err
	}
	return []string{"/usr/bin/env", "LD_PRELOAD=" + path, variable}, nil
}
