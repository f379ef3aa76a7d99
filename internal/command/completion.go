package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/dlock-go/dlock"
)

var shells = []string{"bash", "zsh", "fish"}

const completionHelp = `Prints a script that completes the commands and flags of dlock.

  bash  source <(dlock completion bash), in ~/.bashrc
  zsh   source <(dlock completion zsh), in ~/.zshrc, after compinit
  fish  dlock completion fish | source, in ~/.config/fish/config.fish
`

func writeCompletion(w io.Writer, shell string) {
	map[string]func(io.Writer, []manual){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}[shell](w, readManuals())
}

// values returns the values that a flag takes, or nil if they cannot be listed.
func (o option) values() []string {
	if o.name == "driver" {
		return dlock.Drivers()
	}
	return nil
}

func (o option) isFile() bool { return o.value == "file" }

// completeBash writes a Bash function for "complete -F". Bash calls it with the
// command, the word to complete, and the word before it.
func completeBash(w io.Writer, all []manual) {
	var names []string
	for _, m := range all {
		names = append(names, m.name)
	}
	fmt.Fprintf(w, `# bash completion of dlock
_dlock() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flags='' values=''
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W '%[1]s help' -- "$word"))
		return
	fi
	case "${COMP_WORDS[1]}" in
	help) ((COMP_CWORD == 2)) && COMPREPLY=($(compgen -W '%[1]s' -- "$word")) ;;
	completion) ((COMP_CWORD == 2)) && COMPREPLY=($(compgen -W '%[2]s' -- "$word")) ;;
`, strings.Join(names, " "), strings.Join(shells, " "))
	for _, m := range all {
		if len(m.flags) == 0 {
			continue
		}
		var flags, values []string
		for _, o := range m.flags {
			flags = append(flags, "-"+o.name)
			if o.value != "" {
				values = append(values, "-"+o.name)
			}
		}
		fmt.Fprintf(w, "\t%s) flags='%s' values=' %s ' ;;\n", m.name, strings.Join(flags, " "), strings.Join(values, " "))
	}
	fmt.Fprintf(w, `	esac
	if [[ $before == -driver ]]; then
		COMPREPLY=($(compgen -W '%s' -- "$word"))
	elif [[ $word == -* && $values != *" $before "* ]]; then
		COMPREPLY=($(compgen -W "$flags" -- "$word"))
	fi
}
complete -o default -F _dlock dlock
`, strings.Join(dlock.Drivers(), " "))
}

// inBrackets removes characters that have a special meaning inside the brackets
// of a Zsh _arguments specification.
var inBrackets = strings.NewReplacer("[", "", "]", "", ":", "", "'", "", "\\", "", "`", "")

func completeZsh(w io.Writer, all []manual) {
	fmt.Fprint(w, "#compdef dlock\n_dlock() {\n\tlocal -a commands\n\tcommands=(\n")
	for _, m := range all {
		fmt.Fprintf(w, "\t\t'%s:%s'\n", m.name, inBrackets.Replace(m.summary))
	}
	fmt.Fprint(w, "\t\t'help:show the flags of a command'\n\t)\n")
	fmt.Fprint(w, "\tif ((CURRENT == 2)); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tshift words\n\t((CURRENT--))\n\tcase $words[1] in\n")
	fmt.Fprintf(w, "\thelp) _describe command commands ;;\n\tcompletion) _values shell %s ;;\n", strings.Join(shells, " "))
	for _, m := range all {
		if len(m.flags) == 0 {
			continue
		}
		fmt.Fprintf(w, "\t%s)\n\t\t_arguments", m.name)
		for _, o := range m.flags {
			value := ""
			if values := o.values(); values != nil {
				value = fmt.Sprintf(":%s:(%s)", o.value, strings.Join(values, " "))
			} else if o.value != "" {
				value = fmt.Sprintf(":%s:%s", inBrackets.Replace(o.value), map[bool]string{true: "_files", false: " "}[o.isFile()])
			}
			fmt.Fprintf(w, " \\\n\t\t\t'-%s[%s]%s'", o.name, inBrackets.Replace(o.brief()), value)
		}
		fmt.Fprint(w, " \\\n\t\t\t'*:argument:_files' ;;\n")
	}
	fmt.Fprint(w, "\tesac\n}\nif [[ $funcstack[1] == _dlock ]]; then\n\t_dlock \"$@\"\nelse\n\tcompdef _dlock dlock\nfi\n")
}

func completeFish(w io.Writer, all []manual) {
	quoted := func(text string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'" }
	fmt.Fprint(w, "# fish completion of dlock\n")
	for _, m := range all {
		fmt.Fprintf(w, "complete -c dlock -f -n __fish_use_subcommand -a %s -d %s\n", m.name, quoted(m.summary))
		fmt.Fprintf(w, "complete -c dlock -f -n '__fish_seen_subcommand_from help' -a %s\n", m.name)
		for _, o := range m.flags {
			value := ""
			if values := o.values(); values != nil {
				value = " -x -a " + quoted(strings.Join(values, " "))
			} else if o.value != "" {
				value = map[bool]string{true: " -r", false: " -x"}[o.isFile()]
			}
			fmt.Fprintf(w, "complete -c dlock -n '__fish_seen_subcommand_from %s' -o %s%s -d %s\n", m.name, o.name, value, quoted(o.brief()))
		}
	}
	fmt.Fprint(w, "complete -c dlock -f -n __fish_use_subcommand -a help -d 'show the flags of a command'\n")
	fmt.Fprintf(w, "complete -c dlock -f -n '__fish_seen_subcommand_from completion' -a %s\n", quoted(strings.Join(shells, " ")))
}
