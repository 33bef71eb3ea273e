-- The compendium as a module, for Lmod:
--
--   module use /path/to/clone/env/modules
--   module load scaling-compendium
--
-- It finds the clone from its own path. If the file lies elsewhere, set HPC_COMPENDIUM to the clone.

help([[
The scaling compendium: measures distributed training through notebooks that are the jobs.

    hpc --help
    hpc study plan laptop
]])
whatis("Name: scaling-compendium")
whatis("Version: 0.1.0")
whatis("Description: PyTorch scaling studies in notebooks")

-- FILL IN where .venv was made with a module's Python:
-- depends_on("python/3.11")

local clone = os.getenv("HPC_COMPENDIUM") or myFileName():match("^(.*)/env/modules/[^/]*$")
if not clone then
    LmodError("scaling-compendium: this file lies outside a clone: set HPC_COMPENDIUM to one")
end
local environment = pathJoin(clone, ".venv")
if mode() == "load" and not isFile(pathJoin(environment, "bin", "python")) then
    LmodError("scaling-compendium: no environment in " .. environment .. ": install it as env/README.md in " .. clone .. " says")
end

setenv("HPC_COMPENDIUM", clone)
setenv("VIRTUAL_ENV", environment)
prepend_path("PATH", pathJoin(environment, "bin"))
setenv("PYTHONNOUSERSITE", "1") -- else packages of `pip install --user` come first
unsetenv("PYTHONHOME")

-- FILL IN if all users of the module work in these folders; they take precedence over a cluster file (jobs/clusters):
-- setenv("HPC_RESULTS", pathJoin(os.getenv("SCRATCH"), "compendium", "results"))
-- setenv("HPC_DATA", "/shared/datasets/compendium")
