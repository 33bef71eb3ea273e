# What Open OnDemand's dashboard does with a batch-connect app, with its ERB bindings and trim mode and in its order.
#
#   ruby dashboard.rb form APP                      the form: JSON
#   ruby dashboard.rb launch APP FOLDER < VALUES    stage a session in FOLDER; sbatch's arguments: a JSON list
#   ruby dashboard.rb view APP FOLDER               the HTML on the card of a running session
#
# VALUES is what the browser sends: a JSON object of strings. A refusal goes to standard error, exit code 1.
require "erb"
require "fileutils"
require "json"
require "open3"
require "ostruct"
require "pathname"
require "yaml"
require_relative "basic"

TemplateBinding = Struct.new(:session, :context) do
  def get_binding = binding
end

def render(path, binding)
  erb = ERB.new(path.read, trim_mode: "-")
  erb.filename = path.to_s
  erb.result(binding)
end

def yaml(path, binding)
  YAML.safe_load(render(path, binding)).to_h
end

# Script options that the attributes bc_* make of their values.
def standard(values)
  { "queue_name" => values["bc_queue"].to_s.strip, "accounting_id" => values["bc_account"].to_s.strip }
    .reject { |_, value| value.empty? }
    .merge("wall_time" => values.fetch("bc_num_hours", "1").to_i * 3600)
end

# The folder with the rendered templates; modes are the templates' own.
def stage(app, folder, values)
  templates = app.join("template")
  FileUtils.mkdir_p(folder, mode: 0o700)
  _, said, status = Open3.capture3("rsync", "-rlp", "--exclude", "*.erb", "#{templates}/", folder.to_s)
  raise said unless status.success?

  folder.join("user_defined_context.json").write(JSON.pretty_generate(values))
  session = OpenStruct.new(staged_root: folder, app: OpenStruct.new(root: app))
  binding = TemplateBinding.new(session, OpenStruct.new(values)).get_binding
  Pathname.glob(templates.join("**", "*.erb")).each do |file|
    target = folder.join(file.relative_path_from(templates)).sub_ext("")
    target.write(ERB.new(file.read, trim_mode: "-").result(binding))
    target.chmod(file.stat.mode)
  end
end

# As the Slurm adapter calls sbatch, the script on its standard input.
def arguments(options, folder)
  limit = options.fetch("wall_time")
  made = ["-D", folder.to_s, "-J", "ondemand/dev/compendium", "-o", folder.join("output.log").to_s]
  made += ["-p", options["queue_name"]] if options["queue_name"]
  made += ["-A", options["accounting_id"]] if options["accounting_id"]
  made += ["-t", format("%02d:%02d:%02d", limit / 3600, limit / 60 % 60, limit % 60), "--export", "NONE"]
  made + options.fetch("native") + ["--parsable"]
end

def launch(app, folder, values)
  context = OpenStruct.new(values.merge("staged_root" => folder))
  submit = yaml(app.join("submit.yml.erb"), context.instance_eval { binding })
  raise "only the template basic is played here" unless submit.dig("batch_connect", "template") == "basic"

  stage(app, folder, values)
  folder.join("job_script_content.sh").write("#!/bin/bash\n#{basic_script(folder)}")
  arguments(standard(values).merge(submit.fetch("script", {})), folder)
end

def view(app, folder)
  connection = OpenStruct.new(YAML.safe_load(folder.join("connection.yml").read))
  ERB.new(app.join("view.html.erb").read, trim_mode: "-").result(connection.instance_eval { binding })
end

command, app, folder = ARGV
app = Pathname.new(app)
folder = Pathname.new(folder) if folder
begin
  case command
  when "form" then puts JSON.generate(yaml(app.join("form.yml.erb"), nil))
  when "launch" then puts JSON.generate(launch(app, folder, JSON.parse($stdin.read)))
  when "view" then puts view(app, folder)
  end
rescue StandardError => e
  warn e.message
  exit 1
end
